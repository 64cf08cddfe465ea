"""Random cases from a seed, one module a kind of case; scripts/soak.py runs them.

core        a case, its random numbers, the ring of the last calls, failures
draw        random element types, shapes, values, layouts, operands
worker      a process that runs one case after the other
accepted    known differences that are no failures, each with its reason
"""
