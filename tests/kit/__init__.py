"""The internal test kit, which is not shipped: simulations, their auditor, real servers, contracts of our own parts."""
