"""Producer ids, sequence numbers and transactions: state and requests.

transaction_manager          producer id and state of the transaction (transaction_states)
sequences                    sequence numbers by partition
transactional_requests       what the sender sends for a transaction; transactional_offsets: its offsets
transaction_coordinators     the coordinator of a transactional id
"""
