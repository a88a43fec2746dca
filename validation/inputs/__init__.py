"""From a cohort and a contract to arrays that are ready to analyze."""
