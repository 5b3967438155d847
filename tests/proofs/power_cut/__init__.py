"""Power cuts: the store on a disk that forgets what was not synced."""
