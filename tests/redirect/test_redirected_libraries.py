"""Libraries that open files in compiled code, and services to which a script reports."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hotloop.errors import RedirectError
from hotloop.redirect import Redirect
from hotloop.redirect.libraries import CALLS
from support.user_trees import plant, thrown_away


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return plant(tmp_path / "user")


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Iterator[Redirect]:
    with thrown_away(root, tmp_path / "away") as redirect:
        yield redirect


def test_torch_saves_and_loads_by_name(root: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"step": 0}, root / "model.pt")
    raw = root / "raw.bin"
    raw.write_bytes(bytes(4))
    with thrown_away(root, tmp_path / "away") as run:
        assert torch.load("model.pt")["step"] == 0
        for name in ("model.pt", "naïve.pt"):
            torch.save({"step": 1}, name)
            assert torch.load(name)["step"] == 1
            assert torch.load(f=Path(name), mmap=True)["step"] == 1
        torch.from_file("raw.bin", shared=True, size=4, dtype=torch.uint8).fill_(3)
        torch.UntypedStorage.from_file("raw.bin", shared=True, nbytes=4)[0] = 9
        assert raw.read_bytes() == bytes([9, 3, 3, 3])
        os.remove("model.pt")
        with pytest.raises(FileNotFoundError):
            torch.load("model.pt")
        assert set(run.files) == {root / "naïve.pt", raw}
    assert torch.load(root / "model.pt")["step"] == 0


class Logged:
    """A dataset that reads what was written before, and notes what it has read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> int:
        with open("read.log", "a") as log:
            log.write(f"{at}\n")
        return int(Path("config.yaml").read_text())


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_workers_of_a_loader_share_the_tree(
    run: Redirect, root: Path, tmp_path: Path, method: str
) -> None:
    torch = pytest.importorskip("torch")
    Path("config.yaml").unlink()
    Path("config.yaml").write_text("7")
    loader = torch.utils.data.DataLoader(Logged(), num_workers=1, multiprocessing_context=method)
    assert [int(item) for item in loader] == [7, 7, 7, 7]
    assert Path("read.log").read_text() == "0\n1\n2\n3\n"
    assert set(run.files) == {root / "config.yaml", root / "read.log"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_models_are_saved_by_name(run: Redirect, root: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.jit.trace(torch.nn.Linear(2, 1), torch.ones(1, 2))
    model.save("a.pt")
    torch.jit.save(model, "b.pt")
    assert torch.jit.load("a.pt")(torch.ones(1, 2)).shape == (1, 1)
    assert set(run.files) == {root / "a.pt", root / "b.pt"}


def test_hdf5_files_are_made_changed_and_read(root: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(root / "data.h5", "w") as file:
        file["x"] = [1, 2]
    with thrown_away(root, tmp_path / "away") as run:
        with h5py.File("data.h5", "r") as file:
            assert file["x"][0] == 1
        with h5py.File("data.h5", "a") as file:
            file["x"][0] = 5
        with h5py.File("data.h5") as file:
            assert file["x"][:].tolist() == [5, 2]
        with h5py.File("data/new.h5", "w") as file:
            file["y"] = 1
        with pytest.raises(FileExistsError):
            h5py.File("train.log", "x")
        assert set(run.files) == {root / "data.h5", root / "data/new.h5"}


def test_tables_are_written_and_read_as_parquet(root: Path, tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    pyarrow = importlib.import_module("pyarrow")
    table = pandas.DataFrame({"a": [1, 2]})
    table.to_parquet(root / "table.parquet")
    with thrown_away(root, tmp_path / "away") as run:
        (table + 1).to_parquet("table.parquet")
        assert pandas.read_parquet("table.parquet")["a"].tolist() == [2, 3]
        parquet.write_table(pyarrow.table({"b": [1]}), "data/b.parquet")
        assert parquet.ParquetFile("data/b.parquet").read().num_rows == 1
        table.to_csv("data/c.csv")
        with pyarrow.OSFile("raw", "wb") as file:
            file.write(b"raw")
        assert pyarrow.memory_map("raw").read() == b"raw"
        names = ("table.parquet", "data/b.parquet", "data/c.csv", "raw")
        assert set(run.files) == {root / name for name in names}
        with pytest.raises(RedirectError, match="no other machine"):
            parquet.write_table(pyarrow.table({"b": [1]}), "s3://bucket/b.parquet")


def test_a_summary_writer_writes_below_the_run(run: Redirect, root: Path) -> None:
    pytest.importorskip("tensorboard")
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter("runs/one") as writer:
        writer.add_scalar("loss", 1.0, 0)
    (events,) = os.listdir("runs/one")
    assert Path("runs/one", events).stat().st_size > 0
    assert set(run.files) == {root / "runs/one" / events}


def test_tensorboardx_writes_below_the_run(run: Redirect, root: Path) -> None:
    writer = pytest.importorskip("tensorboardX").SummaryWriter("runs/two")
    writer.add_scalar("loss", 1.0, 0)
    writer.close()
    assert {path.parent for path in run.files} == {root / "runs/two"}


@pytest.mark.long
def test_safetensors_are_saved_and_loaded(run: Redirect, root: Path) -> None:
    pytest.importorskip("safetensors")
    numpy = importlib.import_module("safetensors.numpy")
    numpy.save_file({"a": np.ones(2)}, "a.safetensors")
    assert numpy.load_file("a.safetensors")["a"].sum() == 2
    assert importlib.import_module("safetensors").safe_open("a.safetensors", "np").keys() == ["a"]
    assert set(run.files) == {root / "a.safetensors"}


def test_a_figure_is_saved(run: Redirect, root: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.savefig("loss.png")
    figure.savefig("loss.svg")
    assert {root / "loss.png", root / "loss.svg"} <= set(run.files)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which modules are imported; they are forgotten afterwards."""
    folder = tmp_path / "libraries"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("wandb", "mlflow", "huggingface_hub"):
            del sys.modules[name]


def test_trackers_are_off_whatever_the_script_says(
    libraries: Path, root: Path, tmp_path: Path
) -> None:
    (libraries / "wandb.py").write_text("def init(project=None, mode=None): return mode\n")
    (libraries / "mlflow/tracking/_tracking_service").mkdir(parents=True)
    for package in ("mlflow", "mlflow/tracking", "mlflow/tracking/_tracking_service"):
        (libraries / package / "__init__.py").touch()
    (libraries / "mlflow/tracking/_tracking_service/utils.py").write_text(
        "def set_tracking_uri(uri): return uri\n"
    )
    with thrown_away(root, tmp_path / "away"):
        wandb = importlib.import_module("wandb")
        assert wandb.init("mine", mode="online") == wandb.init("mine", "online") == "disabled"
        assert os.environ["WANDB_MODE"] == "disabled"
        uri = os.environ["MLFLOW_TRACKING_URI"]
        assert str(tmp_path / "away/run") in uri
        service = importlib.import_module("mlflow.tracking._tracking_service.utils")
        assert service.set_tracking_uri("http://server") == uri
    assert wandb.init("mine", "online") == "online"
    assert "WANDB_MODE" not in os.environ


HUB = """
class RepoUrl(str): pass
class CommitInfo:
    def __init__(self, **named): self.__dict__.update(named)
class HfApi:
    endpoint = "https://hub"
    def create_repo(self, repo_id, *, private=None): raise AssertionError("made")
    def create_commit(self, repo_id, operations, *, commit_message, run_as_future=False):
        raise AssertionError("changed")
    def upload_file(self, *, path_or_fileobj, repo_id): raise AssertionError("changed")
    def delete_repo(self, repo_id): raise AssertionError("deleted")
    def hf_hub_download(self, repo_id, filename): return "downloaded"
api = HfApi()
create_repo, upload_file, delete_repo = api.create_repo, api.upload_file, api.delete_repo
"""


def test_the_hub_is_not_changed_and_still_read(libraries: Path, root: Path, tmp_path: Path) -> None:
    (libraries / "huggingface_hub").mkdir()
    (libraries / "huggingface_hub/__init__.py").touch()
    (libraries / "huggingface_hub/hf_api.py").write_text(HUB)
    with thrown_away(root, tmp_path / "away"):
        hub = importlib.import_module("huggingface_hub.hf_api")
        assert hub.create_repo("me/model") == hub.HfApi().create_repo("me/model")
        assert hub.create_repo("me/model") == "https://hub/me/model"
        commit = hub.HfApi().create_commit("me/m", [], commit_message="m", run_as_future=True)
        assert commit.result().commit_message == "m"
        assert hub.upload_file(path_or_fileobj="x", repo_id="me/m").oid == "0" * 40
        with pytest.raises(RedirectError, match="delete_repo"):
            hub.delete_repo("me/m")
        assert hub.api.hf_hub_download("me/m", "f") == "downloaded"
    with pytest.raises(AssertionError, match="made"):
        hub.create_repo("me/model")


def test_a_library_that_the_script_does_not_import_is_not_imported(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from hotloop.redirect import Redirect\n"
        f"with Redirect(pathlib.Path({str(tmp_path)!r})): print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    loaded = set(done.stdout.decode().split())
    assert "hotloop.redirect.redirect" in loaded
    assert not loaded & {call.module.split(".")[0] for call in CALLS}
    assert not loaded & {"sqlite3", "multiprocessing.spawn", "wandb", "mlflow", "huggingface_hub"}
