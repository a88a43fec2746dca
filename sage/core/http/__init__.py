"""What every web-service client shares: rate limits, retries, cache, circuit breaker."""
