mod edges;
mod properties;
mod recorded;
mod speed;
