"""Group and transaction coordinators: state machines over internal topics, on one runtime."""
