"""What crosses the network: the shapes of requests and answers, the frames of the stream, and one table of errors."""
