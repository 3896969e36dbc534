//! What every bench of this crate needs: figures with their bars.

pub mod figures;
