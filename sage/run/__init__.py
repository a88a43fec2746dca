"""The state machine of a run, built on LangGraph."""
