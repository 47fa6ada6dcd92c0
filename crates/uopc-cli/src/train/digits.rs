//! The model that learns the digits: its data, one step, one test, and the checkpoint.
