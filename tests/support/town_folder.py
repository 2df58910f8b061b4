"""A population folder in the layout of the reference's, with a planted truth.

Nothing of the reference's own files is in it: names and kinds of files, and numbers made here.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

LABELS = ("20t29", "30t39", "40t49", "50t64", "65A", "U19")
"""Of the age codes 0 to 5, as most of the reference's folders have them."""
CHILDREN_FIRST = ("U19", "20t29", "30t39", "40t49", "50t64", "65A")
"""As one of them has them."""
PEOPLE = (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 5, 0, 1, 2, 5, 0, 1, 5, 0, 5, 5)
"""By agent, over and over: what LABELS has their ages as. No two ages are equally many."""
EXPOSED = (0, 1, 2)
_APART = (1, 5, 23, 57, 101, 211, 307)  # those who meet


def write_town(folder: Path, size: int = 630, labels: tuple[str, ...] = LABELS) -> Path:
    """Write the folder; agent k has the age LABELS[PEOPLE[k % 21]], whatever its code is.

    Contacts are written once, from the lower number to the higher; ages meet each other at random,
    nearly, nobody is far from anybody, and the first three agents are exposed.
    """
    networks = folder / "mobility_networks"
    networks.mkdir(parents=True)
    codes = np.array([labels.index(LABELS[PEOPLE[k % len(PEOPLE)]]) for k in range(size)])
    gender = pd.Series(np.arange(size) % 2)
    for name, column in {"age": pd.Series(codes), "gender": gender}.items():
        column.to_pickle(folder / f"{name}.pickle")
        pd.DataFrame({"value": column}).to_parquet(folder / f"{name}.parquet")
    pd.Series([f"H{k % 3}" for k in range(size)], dtype=object).to_pickle(folder / "hobby.pkl")
    # What stands beside the agents: rows of other things, in every kind of file.
    pd.Series(np.zeros(size // 5, np.int64)).to_pickle(folder / "county.pickle")
    households = pd.DataFrame({"area": ["x", "y"], "people_num": [size, 0], "share": [0.5, 0.5]})
    households.to_pickle(folder / "household.pkl")
    claims = pd.Series([10.0, 12.0, 9.0])
    claims.to_pickle(folder / "monthly_claims.pkl")
    pd.DataFrame({"value": claims}).to_parquet(folder / "monthly_claims.parquet")
    (folder / "cases.csv").write_text("month,cases\n1,100\n")
    (folder / "__init__.py").write_text("")
    mapping = {"age": list(labels), "gender": ["male", "female"], "area": ["x"], "household": [2.0]}
    (folder / "mapping.json").write_text(json.dumps(mapping))
    stages = np.zeros(size)
    stages[list(EXPOSED)] = 1
    np.savetxt(folder / "disease_stages.csv", stages, header="stages", comments="")
    np.savetxt(networks / "0.csv", contacts(size), "%d", ",")
    np.savetxt(networks / "1.csv", contacts(size)[::2, ::-1], "%d", ",")
    return folder


def contacts(size: int) -> NDArray[np.int64]:
    """The rows of 0.csv."""
    rows = [(k, k + apart) for apart in _APART for k in range(size - apart)]
    return np.array(rows)
