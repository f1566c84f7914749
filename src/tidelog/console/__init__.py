"""The console: a cluster, or several, in a browser. A process of its own over the asyncio client.

``watching`` looks at clusters again and again and keeps what they were like; ``records`` reads, filters and
writes records; ``people`` knows who may do what, and notes what was done; ``api`` is the HTTP/JSON API, one
module for each subject; ``web`` puts it together for a browser, and ``static`` holds the pages, which use the
API alone. Started by ``tidelog console``; needs the extra ``tidelog[console]``.
"""
