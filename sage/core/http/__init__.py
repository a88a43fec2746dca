"""HTTP client of all web services: rate limits, retries, cache, circuit breaker."""
