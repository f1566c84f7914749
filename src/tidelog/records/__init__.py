"""Record batches: their header, the records inside, compression, control markers, the old formats."""
