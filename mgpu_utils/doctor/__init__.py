"""`mgpu doctor`: find what is wrong with this machine and say how to mend it.

Each `*_checks` module gathers facts on one topic and judges them apart, so that the judging can be tried on made-up
machines. Nothing here imports torch: it is asked in child processes, so that a broken or hanging one is a finding.
"""
