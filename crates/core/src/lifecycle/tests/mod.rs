//! The life of a node, state by state, in small worlds.

mod happy;
