"""Turn a hypothesis into a frozen contract: covariates, tests, power, amendments."""
