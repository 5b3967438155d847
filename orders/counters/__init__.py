"""The rate limits' counters: in memory with a journal on disk, or shared in Redis."""
