"""Model of where readers look: a small region detector trained on recorded sessions.

Source: "Pathology-CoT: Learning Visual Chain-of-Thought Agent from Expert Whole Slide
Image Diagnosis Behavior", 4.6.
"""
