"""What was made at the start is looked at by no later collection."""

import gc

from control_plane.server_process import GARBAGE_OBJECTS, keep_what_stays


def test_collections_pass_over_what_was_made_at_the_start() -> None:
    before = gc.get_threshold()
    gc.freeze()  # What other tests made is not looked for here.
    frozen = gc.get_freeze_count()
    kept = {"made at the start": ["it"]}
    try:
        keep_what_stays()
        assert all(tracked is not kept for tracked in gc.get_objects())
        assert gc.get_freeze_count() > frozen
        assert gc.get_threshold()[0] == GARBAGE_OBJECTS
    finally:
        gc.set_threshold(*before)
