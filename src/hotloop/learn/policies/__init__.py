"""What acts and what is trained: networks, distributions, masks, and the policy that holds them.

What acts in worker processes needs no torch: `actor`, `distributions`, `masks` and `observations`.
"""
