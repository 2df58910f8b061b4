"""COVID-19 on a contact network: susceptible, exposed, infected, recovered, dead (SEIRM).

`Executor(model=covid, ...)` takes this package as it is; `covid.model(CovidSettings(...))` is the
model with settings of one's own.
"""

from hotloop.models.covid.disease import STAGES
from hotloop.models.covid.model import CovidSettings, model

__all__ = ["STAGES", "CovidSettings", "model"]
