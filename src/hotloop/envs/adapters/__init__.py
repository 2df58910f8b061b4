"""Envs of other packages behind Gymnasium's vector contract, imported only when used."""
