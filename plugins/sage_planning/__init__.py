"""Planning the events and patients that a study needs, before its cohort exists."""
