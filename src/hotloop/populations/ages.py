"""Age groups: their names and codes, for readers, drawn populations and models alike."""

AGE_GROUPS = ("20t29", "30t39", "40t49", "50t64", "65a", "u19")
"""By code 0 to 5: 20 to 29, 30 to 39, 40 to 49, 50 to 64, 65 and above, 19 and under. The order is
that of most populations that are published for the reference system; the codes of a folder whose
mapping.json has another order are translated."""

AGE_CODES = {name: code for code, name in enumerate(AGE_GROUPS)}
SCHOOL_AGE = AGE_CODES["u19"]
"""The code of those up to 19."""
