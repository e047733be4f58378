-- What a rebuild read of each version, by which verify reads it again: by interval, and of files, it may be more than was counted.

ALTER TABLE txbatch.rebuilt ADD COLUMN metadata json;
ALTER TABLE txbatch.rebuilt ADD COLUMN streams json;
