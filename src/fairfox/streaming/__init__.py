"""Tables of any size: people scored batch by batch, on one machine, on Spark or on Dask."""
