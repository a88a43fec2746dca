"""The question as a contract: parsed, shown, corrected, and compared with each hypothesis."""
