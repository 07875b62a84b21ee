"""Worker pools, and slots that tenants share fairly."""
