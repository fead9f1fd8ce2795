"""A stand-in for K3s, made of real parts: etcd, Kubernetes and containerd, behind K3s' command line and join protocol.

It is for local machines, which have the parts in a folder (`layout.PARTS`), and needs nothing of them but Python as
Debian 12 has it, with cryptography and yaml. Its behaviour follows K3s 1.36; docs/kubernetes-tests.md says what differs.
"""
