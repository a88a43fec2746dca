"""Events and patients that a study needs, before its cohort exists."""
