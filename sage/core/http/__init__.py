"""HTTP client for all web services, with rate limits, retries, a cache and circuit breakers."""
