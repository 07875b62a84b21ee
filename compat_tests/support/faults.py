"""Seeds that ask the faulty server for a fault; see faulty_server.py."""

FAIL_AT_ONCE = 900_001
"""The step that computes the prompt raises."""

FAIL_MIDWAY = 900_002
"""The step after the fifth token raises."""

STALL = 900_003
"""The step after the fifth token takes STALL_SECONDS."""

NO_NUMBERS = 900_004
"""The logits of this request are NaN from the sixth token on."""

BREAK = 900_005
"""Every step from this one on raises."""

STALL_SECONDS = 1.5
FAIL_AFTER = 5

NEVER_ID = 2000
"""A token to which the model gives probability zero: its logit is minus infinity."""
