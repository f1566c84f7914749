"""The main job, ``tidelog demo``: a broker, generated events, five pipelines on Spark, and a live view.

    settings      what a person may choose
    run           the order of things: starts the children, keeps the view, ends everything, the exit code
    events_job    the child with the generator
    spark_job     the child with the Spark session and its streaming queries
    fork_server   the process that Spark's Python processes are forked from; ``fork_client`` asks it to
    observer      reads offsets, lag and results from the broker into the view
    results       what the records of the output topics say, held against ``truth``
    cassandra_tables  what the tables in Cassandra hold at the end, where there is one
    directory     where everything is kept, and the broker's port
    display       shows the view while the run goes on
    view          the figures, plain values
    dashboard     the view as a terminal shows it; ``panels`` its parts; ``plain`` for everything else
    summary       what is printed at the end

Broker, generator and Spark are child processes (``tidelog.processes``): nothing here imports the server. Only
``cli/demo.py`` calls it.
"""
