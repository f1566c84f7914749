"""``send_batch`` and ``send_arrow``: many records, one result.

batch_input, batch_sender     any input as records, and their outcomes by batch
table_sender, table_writer    rows of tables into batches, without a record each
"""
