"""From a hypothesis to a frozen contract: covariates, tests, power, amendments."""
