"""The cost model of envs on a cluster: fitted to measured points, it forecasts other clusters."""
