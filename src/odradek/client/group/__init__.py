"""Members of groups: which partitions of its topics a consumer shall read, in agreement with others."""
