"""OpenTelemetry traces: one span per request. The extra ``roseinfer[otel]`` has the packages."""
