"""The endpoint for assistants: the Model Context Protocol over HTTP, with tools over the console's API.

Off unless asked for. ``protocol`` is the messages, ``tools`` what can be called, ``serving`` who may call.
Every message is answered by itself and no session is kept, which all versions of the protocol allow. So
little of the protocol is left that it stands here, rather than on the official package, which brings a
dozen others and doubles the console's memory; its client talks to ours in the tests.
"""
