"""The automation objects of MSMQ over DCOM ([MC-MQAC]): one module for each family of classes, on `msrpc.dcom`."""
