"""The state machine of a run, on LangGraph."""
