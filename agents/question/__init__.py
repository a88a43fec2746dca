"""The question as a contract: parsed, shown, corrected, and held against each hypothesis."""
