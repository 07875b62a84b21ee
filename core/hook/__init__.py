"""The attention of transformers' modules, routed to a function of ours."""
