"""The daemon's side of the processes beside it: `console` answers the HTTP process, `flight` the Flight process."""
