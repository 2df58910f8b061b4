"""Services to which a script reports: off, or writing into the run's own folder.

Most obey the environment. An argument that the script gives would win over it, so in the calls
that take one it is replaced.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hotloop.errors import RedirectError
from hotloop.redirect.replacing import Function, Replacements


@dataclass(frozen=True)
class Forced:
    """An argument of a library's function that has another value than the script says."""

    module: str
    function: str
    argument: str
    value: Any


def environment(folder: str) -> dict[str, str]:
    """Return the variables that turn trackers off. folder: where files go that they insist on."""
    return {
        "WANDB_MODE": "disabled",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": _mlflow_store(folder),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "COMET_AUTO_LOG_DISABLE": "true",
        "COMET_OFFLINE_DIRECTORY": f"{folder}/comet",
        "NEPTUNE_MODE": "offline",
        "CLEARML_OFFLINE_MODE": "1",
        # Its compiled code would write the downloads by itself; Python's own way stays.
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _mlflow_store(folder: str) -> str:
    return f"file://{folder}/mlflow"


def _forced(folder: str) -> tuple[Forced, ...]:
    store = _mlflow_store(folder)
    return (
        Forced("wandb", "init", "mode", "disabled"),
        Forced("mlflow.tracking._tracking_service.utils", "set_tracking_uri", "uri", store),
        Forced("mlflow.tracking.client", "MlflowClient.__init__", "tracking_uri", store),
        Forced("neptune", "init_run", "mode", "offline"),
        Forced("comet_ml", "start", "online", False),
    )


# What the Hub's client changes there: what it answers instead, from its module, itself and the
# arguments; None where no answer would be true.
Answer = Callable[[ModuleType, Any, Mapping[str, Any]], Any]


def _commit(hub: ModuleType, client: Any, arguments: Mapping[str, Any]) -> Any:
    return hub.CommitInfo(
        commit_url=f"{client.endpoint}/{arguments['repo_id']}/commit/main",
        commit_message=arguments.get("commit_message") or "",
        commit_description="",
        oid="0" * 40,
    )


def _repository(hub: ModuleType, client: Any, arguments: Mapping[str, Any]) -> Any:
    return hub.RepoUrl(f"{client.endpoint}/{arguments['repo_id']}")


HUB_MODULE = "huggingface_hub.hf_api"
HUB: Mapping[str, Answer | None] = {
    "create_repo": _repository,
    "create_commit": _commit,
    "upload_file": _commit,
    "upload_folder": _commit,
    "delete_file": _commit,
    "delete_folder": _commit,
    "upload_large_folder": lambda _hub, _client, _arguments: None,
    "create_branch": lambda _hub, _client, _arguments: None,
    "create_tag": lambda _hub, _client, _arguments: None,
    "delete_repo": None,
    "delete_branch": None,
    "delete_tag": None,
    "move_repo": None,
    "super_squash_history": None,
}


def turn_off(folder: str, replacements: Replacements) -> None:
    """Keep the trackers off that a script imports, whatever its calls say."""
    for forced in _forced(folder):
        replacements.add(forced.module, forced.function, functools.partial(_force, forced))
    for name, answer in HUB.items():
        method = functools.partial(_answering, name, answer)
        replacements.add(HUB_MODULE, f"HfApi.{name}", method)
        # The module's own functions are methods of a client that it made when it was imported.
        replacements.add(HUB_MODULE, name, method)


def _force(forced: Forced, old: Function) -> Function:
    signature = inspect.signature(old)
    if forced.argument not in signature.parameters:  # another version of the library
        return old

    @functools.wraps(old)
    def call(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.arguments[forced.argument] = forced.value
        return old(*bound.args, **bound.kwargs)

    return call


def _answering(name: str, answer: Answer | None, old: Function) -> Function:
    signature = inspect.signature(old)

    @functools.wraps(old)
    def call(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        if answer is None:
            raise RedirectError(
                f"{name}: a throw-away run changes nothing on the Hugging Face hub; expected "
                "only downloads"
            )
        client = getattr(old, "__self__", None) or given["self"]
        result = answer(sys.modules[HUB_MODULE], client, given)
        return _future(result) if given.get("run_as_future") else result

    return call


def _future(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
