"""The charts of the page, as inline SVG: pure functions from numbers to markup.

Each chart is drawn for a width in CSS pixels and never scaled far from it, so that its text stays
as large as the text around it: the page draws every chart once for a wide and once for a narrow
screen. Colours and fonts come from the page's stylesheet, by class; `s0` to `s19` are stages.
"""
