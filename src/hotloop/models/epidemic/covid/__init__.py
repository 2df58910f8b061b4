"""COVID-19 on a contact network: susceptible, exposed, infected, recovered, dead (SEIRM).

`Executor(model=covid, ...)` takes this package as it is; `covid.model(CovidSettings(...))` is the
model with settings of one's own.
"""

from hotloop.models.epidemic.covid.disease import COMPARTMENTS
from hotloop.models.epidemic.covid.model import CovidSettings, model
from hotloop.models.epidemic.covid.spec import MODEL

__all__ = ["COMPARTMENTS", "MODEL", "CovidSettings", "model"]
