"""Pages and JSON API: reads models, acts through ``orchestrator.engine.operate`` alone."""
