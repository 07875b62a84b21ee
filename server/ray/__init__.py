"""Replicas of whole servers behind Ray Serve. Nothing else of roseinfer imports ray."""
