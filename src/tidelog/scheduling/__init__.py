"""Waiting and slicing, the only vocabulary for both: promises, slices, timers, deadlines, the slow lane.

The event loop serves every client, so nothing may hold it for long. Code that waits for something returns a
``promise.Promise``; code that may take long is a generator that yields often (``slices.Slices``), which the
``slow_lane`` runs a few milliseconds per turn of the loop; a coroutine that walks a long list uses
``yielding.yielding_every``. ``timers`` fire actions by name, ``deadlines`` end waits of equal length.

Nothing here knows about Kafka; everything that runs on the broker's loop may import it.
"""
