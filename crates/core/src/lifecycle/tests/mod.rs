//! The life of a node, state by state, in small worlds.

mod alone;
mod back;
mod drains;
mod happy;
mod held;
mod property;
mod trouble;
mod verified;
